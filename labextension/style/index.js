import './base.css';
import '../../jupyter_sky/widgets/static/base.css';
import '../../jupyter_sky/widgets/static/card.css';
import '../../jupyter_sky/widgets/static/logs.css';
import './runs.css';
