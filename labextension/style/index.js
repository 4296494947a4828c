import './base.css';
import '../../jupyter_sky/widgets/static/base.css';
import '../../jupyter_sky/widgets/static/form.css';
import './form.css';
