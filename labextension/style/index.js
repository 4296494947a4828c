import './base.css';
import '../../jupyter_sky/widgets/static/base.css';
import '../../jupyter_sky/widgets/static/cost.css';
